# mfsdp_room(<target> FOLDERS <folder>... SEES <target or library>...)
# A static library of every .cpp and .cu in the folders, except mains and probes. SEES is the arrow of the design:
# tests/arrows checks it against the table, and that includes follow it.
#
# A header that a .cpp of its name includes first (tests/arrows checks that it does) stands alone,
# or that .cpp would not compile. Others are compiled on their own by
# <target>_verify_interface_header_sets, and by all_verify_interface_header_sets for all rooms.
function(mfsdp_room target)
  cmake_parse_arguments(ROOM "" "" "FOLDERS;SEES" ${ARGN})
  set(sources)
  set(headers)
  foreach(folder IN LISTS ROOM_FOLDERS)
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cpp)
    list(APPEND sources ${found})
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cu)
    list(APPEND sources ${found})
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.hpp)
    foreach(header IN LISTS found)
      string(REGEX REPLACE "\\.hpp$" ".cpp" source ${header})
      if(NOT EXISTS ${source})
        list(APPEND headers ${header})
      endif()
    endforeach()
  endforeach()
  list(FILTER sources EXCLUDE REGEX "(/main|_probe)\\.(cpp|cu)$")
  add_library(${target} STATIC ${sources})
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR} FILES ${headers})
  set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON LINKER_LANGUAGE CXX)
  target_link_libraries(${target} PUBLIC ${ROOM_SEES})
endfunction()
