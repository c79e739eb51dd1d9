# kvern_room(NAME PUBLIC libs... PRIVATE libs...): the static library kvern_NAME of src/NAME/*.cc.
function(kvern_room name)
  cmake_parse_arguments(ROOM "" "" "PUBLIC;PRIVATE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc)
  add_library(kvern_${name} STATIC ${sources})
  target_include_directories(kvern_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(kvern_${name} PUBLIC ${ROOM_PUBLIC} PRIVATE ${ROOM_PRIVATE})
endfunction()

# kvern_embed(ROOM FILE FUNCTION): std::string_view kvern::ROOM::FUNCTION() gives the text of src/ROOM/FILE.
function(kvern_embed room file function)
  set(from ${PROJECT_SOURCE_DIR}/src/${room}/${file})
  set(to ${CMAKE_BINARY_DIR}/embedded/${function}.cc)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${from})
  file(READ ${from} text)
  # A literal may have 64 KiB in some compilers; pieces are joined again.
  string(REGEX REPLACE "(.............................................................................................)" "\\1)kv\" R\"kv(" text "${text}")
  file(CONFIGURE OUTPUT ${to} @ONLY CONTENT
"// Made by the build from src/${room}/${file}.
#include <string_view>
namespace kvern::${room} {
std::string_view ${function}();
std::string_view ${function}() { return R\"kv(${text})kv\"; }
}
")
  target_sources(kvern_${room} PRIVATE ${to})
endfunction()
