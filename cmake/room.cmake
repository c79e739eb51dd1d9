# kvern_room(NAME PUBLIC libs... PRIVATE libs...): the static library kvern_NAME of src/NAME/*.cc.
function(kvern_room name)
  cmake_parse_arguments(ROOM "" "" "PUBLIC;PRIVATE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc)
  add_library(kvern_${name} STATIC ${sources})
  target_include_directories(kvern_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(kvern_${name} PUBLIC ${ROOM_PUBLIC} PRIVATE ${ROOM_PRIVATE})
endfunction()
