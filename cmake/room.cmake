# kvern_room(NAME PUBLIC libs... PRIVATE libs...): the static library kvern_NAME of src/NAME/*.cc and of its folders.
function(kvern_room name)
  cmake_parse_arguments(ROOM "" "" "PUBLIC;PRIVATE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc ${PROJECT_SOURCE_DIR}/src/${name}/*/*.cc)
  add_library(kvern_${name} STATIC ${sources})
  target_include_directories(kvern_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(kvern_${name} PUBLIC ${ROOM_PUBLIC} PRIVATE ${ROOM_PRIVATE})
endfunction()

# kvern_embed(ROOM FILE FUNCTION): std::string_view kvern::ROOM::FUNCTION() gives the bytes of src/ROOM/FILE.
function(kvern_embed room file function)
  set(from ${PROJECT_SOURCE_DIR}/src/${room}/${file})
  set(to ${CMAKE_BINARY_DIR}/embedded/${function}.cc)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${from})
  # Numbers, not text: no byte of a file means anything to CMake or in C++ then, and no literal grows too long.
  file(READ ${from} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  file(CONFIGURE OUTPUT ${to} @ONLY CONTENT
"// Made by the build from src/${room}/${file}.
#include <string_view>
namespace kvern::${room} {
namespace {
constexpr unsigned char bytes[] = {${bytes}};
}
std::string_view ${function}();
std::string_view ${function}() { return {reinterpret_cast<const char*>(bytes), sizeof(bytes)}; }
}
")
  target_sources(kvern_${room} PRIVATE ${to})
endfunction()
