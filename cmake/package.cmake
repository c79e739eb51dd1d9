# The Debian package (./run deb): the kvern command, its man page, and the units of `kvern gc` and `kvern serve`. The connector is not in
# it: that is a Python wheel, because it must be built for the engine's own Python.
include(GNUInstallDirs)
find_package(Python3 COMPONENTS Interpreter REQUIRED)
set(debian ${PROJECT_SOURCE_DIR}/deploy/debian)
set(systemd ${PROJECT_SOURCE_DIR}/deploy/systemd)
set(documents ${CMAKE_INSTALL_DATADIR}/doc/kvern)

install(TARGETS kvern_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${debian}/kvern-gc.service ${debian}/kvern-gc.timer ${systemd}/kvern-serve.service
        DESTINATION /lib/systemd/system)
install(FILES ${debian}/kvern.default DESTINATION /etc/default RENAME kvern)
install(FILES ${systemd}/kvern-serve.default DESTINATION /etc/default RENAME kvern-serve)
install(FILES README.md CHANGELOG.md docs/operations.md docs/format.md docs/protocol.md ${debian}/copyright
        DESTINATION ${documents})

# Debian wants a changelog of its own form; ours is CHANGELOG.md.
set(authors "The authors of Kvern <kvern@invalid.invalid>")
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${CMAKE_BINARY_DIR}/package/changelog
     "kvern (${PROJECT_VERSION}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- ${authors}  ${now}\n")

# Made at the time of packing, by the program that is packed.
set(man_page ${CMAKE_BINARY_DIR}/package/kvern.1.gz)
set(changelog ${CMAKE_BINARY_DIR}/package/changelog.gz)
install(CODE "execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/man_page.py
                $<TARGET_FILE:kvern_cli> ${PROJECT_VERSION} ${man_page} COMMAND_ERROR_IS_FATAL ANY)
              execute_process(COMMAND gzip -9nc ${CMAKE_BINARY_DIR}/package/changelog
                OUTPUT_FILE ${changelog} COMMAND_ERROR_IS_FATAL ANY)")
install(FILES ${man_page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${changelog} DESTINATION ${documents})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kvern)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "${authors}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "command for KV caches of LLM inference on shared storage")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "Looks into the stores in which inference engines keep the KV cache of prompts,
checks every byte of them, measures what a directory can do, keeps a store
within its size by a systemd timer, and serves it to S3 clients.")
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_SOURCE_DIR}/build)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS man-db)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${debian}/conffiles)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
include(CPack)
