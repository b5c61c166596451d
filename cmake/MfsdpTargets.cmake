# Modules whose functions run a few times a command: flags, tables, pages, reports. A release build optimises them
# little, which compiles in three quarters of the time.
set(MFSDP_CALLED_SELDOM mfsdp_cli mfsdp_request mfsdp_record mfsdp_render mfsdp_session mfsdp_reports mfsdp_html
  mfsdp_report_commands mfsdp_hardware mfsdp_sim_tool mfsdp_exec_tool mfsdp_verify_tool mfsdp_findings mfsdp_bugs
  mfsdp_launch mfsdp_oracle mfsdp_convert_tool)

# mfsdp_room(<target> FOLDERS <folder>... SEES <target or library>...)
# A static library of every .cpp and .cu in the folders, except mains and probes. SEES is the arrow of the design:
# tests/arrows checks it against the table, and that includes follow it.
# scripts/check-headers compiles each header on its own.
function(mfsdp_room target)
  cmake_parse_arguments(ROOM "" "" "FOLDERS;SEES" ${ARGN})
  set(sources)
  foreach(folder IN LISTS ROOM_FOLDERS)
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cpp)
    list(APPEND sources ${found})
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cu)
    list(APPEND sources ${found})
    set_property(GLOBAL PROPERTY MFSDP_ROOM_OF_${folder} ${target})
  endforeach()
  list(FILTER sources EXCLUDE REGEX "(/main|_probe)\\.(cpp|cu)$")
  add_library(${target} STATIC ${sources})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX MFSDP_FOLDERS "${ROOM_FOLDERS}")
  target_link_libraries(${target} PUBLIC ${ROOM_SEES})
  if(target IN_LIST MFSDP_CALLED_SELDOM)
    target_compile_options(${target} PRIVATE "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>")
  endif()
  mfsdp_precompile(${target} LIBRARIES)
  if(MFSDP_BUILD_FUZZERS)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${MFSDP_FUZZ_COVERAGE}>)
  endif()
endfunction()
