# Compiler options of every target. CPU extensions are chosen at run time by functions with a target attribute, so the
# build stays at the base instruction set of the architecture.
add_compile_options(-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wcast-qual)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 sees overlaps in "text" + std::string that are not there (its bug 105651).
  add_compile_options(-Wno-restrict)
endif()
if(KVERN_WERROR)
  add_compile_options(-Werror)
endif()
if(KVERN_SANITIZE)
  add_compile_options(-fsanitize=${KVERN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${KVERN_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Clang before 17 can't put the marks of this check before coroutines ("difference across sections").
    add_compile_options(-fno-sanitize=function)
  else()
    # Behind the checks of sanitizers GCC 12 sees empty optionals being read that are not (boost::optional in Beast).
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
  if(KVERN_SANITIZE STREQUAL "thread")
    # The thread sanitizer does not know fences; a loop of one thread, which is posted to under a lock, needs none.
    add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()

find_program(KVERN_CCACHE ccache)
if(KVERN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${KVERN_CCACHE})
endif()
find_program(KVERN_MOLD mold)
if(KVERN_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
