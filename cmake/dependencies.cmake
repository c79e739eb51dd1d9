# Everything here is a Debian 12 package; the README's commands install them.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto SSL)
find_package(Boost 1.81 REQUIRED)  # headers alone
find_package(pugixml REQUIRED)
find_package(tomlplusplus REQUIRED)
pkg_check_modules(liburing REQUIRED IMPORTED_TARGET liburing)

if(NOT TARGET tl::expected)
  find_path(KVERN_EXPECTED_INCLUDE tl/expected.hpp REQUIRED)
  add_library(tl::expected INTERFACE IMPORTED)
  target_include_directories(tl::expected INTERFACE ${KVERN_EXPECTED_INCLUDE})
endif()
