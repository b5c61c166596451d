# Writes generated/programs.tsv, from which scripts/affected reads what a build consists of. A line for
# each library and program: its name, the modules that it links, the programs that it runs, its sources.
# Tabs separate columns, semicolons their entries.
function(mfsdp_list_programs directory)
  get_property(targets DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(NOT type MATCHES "EXECUTABLE|STATIC_LIBRARY")
      continue()
    endif()
    get_target_property(links ${target} LINK_LIBRARIES)
    get_target_property(runs ${target} MANUALLY_ADDED_DEPENDENCIES)
    # Precompiled headers that it shares with another target are a dependency too.
    get_target_property(precompiled ${target} PRECOMPILE_HEADERS_REUSE_FROM)
    list(REMOVE_ITEM runs ${precompiled})
    get_target_property(sources ${target} SOURCES)
    list(TRANSFORM sources PREPEND ${directory}/ REGEX "^[^/]")
    list(TRANSFORM sources REPLACE "^${CMAKE_SOURCE_DIR}/" "")
    file(APPEND ${CMAKE_BINARY_DIR}/generated/programs.tsv "${target}\t${links}\t${runs}\t${sources}\n")
  endforeach()
  get_property(folders DIRECTORY ${directory} PROPERTY SUBDIRECTORIES)
  foreach(folder IN LISTS folders)
    mfsdp_list_programs(${folder})
  endforeach()
endfunction()

file(WRITE ${CMAKE_BINARY_DIR}/generated/programs.tsv "")
mfsdp_list_programs(${CMAKE_SOURCE_DIR})
