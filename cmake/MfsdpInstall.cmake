# `cmake --install` copies two components:
#   tools        programs, scenarios, manual pages, completion, documents
#   development  libraries with their headers, and the CMake package mfsdp
include(CMakePackageConfigHelpers)

# ---- tools: they look for scenarios in ../share/mfsdp/scenarios (core/cli/scenarios.hpp) --------
set(tools mfsdp-sim mfsdp-verify mfsdp-exec mfsdp-report mfsdp-convert)
# The toolkit of CUDA may lie where the system does not look for libraries.
set_target_properties(${tools} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS ${tools} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/scenarios DESTINATION share/mfsdp COMPONENT tools)
foreach(tool IN LISTS tools)
  mfsdp_manual(${tool})
endforeach()
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tools)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tools)

# ---- development --------------------------------------------------------------------------------
# Modules that another program can link, with all their dependencies: mfsdp_plan is mfsdp::plan.
set(core_rooms mfsdp_plan mfsdp_planner mfsdp_formats mfsdp_runtime)
set(sim_rooms mfsdp_statistics mfsdp_record mfsdp_hardware mfsdp_allocator mfsdp_engines mfsdp_sim)
set(verify_rooms mfsdp_findings mfsdp_proof_order mfsdp_proof_memory mfsdp_proof_ledger
  mfsdp_proof_values mfsdp_proof_ranks mfsdp_proof mfsdp_conformance mfsdp_checker mfsdp_cpu)
set(headers ${CMAKE_INSTALL_INCLUDEDIR}/mfsdp)

# One name links all modules of a group. mfsdp::sim is itself a module that depends on its group.
foreach(group core verify)
  add_library(mfsdp_${group} INTERFACE)
  target_link_libraries(mfsdp_${group} INTERFACE ${${group}_rooms})
endforeach()

set(rooms ${core_rooms} ${sim_rooms} ${verify_rooms})
foreach(room IN LISTS rooms)
  target_include_directories(${room} INTERFACE $<INSTALL_INTERFACE:${headers}>)
  target_compile_features(${room} PUBLIC cxx_std_20)
  get_target_property(folders ${room} MFSDP_FOLDERS)
  foreach(folder IN LISTS folders)
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.hpp)
    install(FILES ${found} DESTINATION ${headers}/${folder} COMPONENT development)
  endforeach()
endforeach()
foreach(target IN LISTS rooms ITEMS mfsdp_core mfsdp_verify)
  string(REPLACE "mfsdp_" "" name ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
endforeach()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/mfsdp)
install(TARGETS ${rooms} mfsdp_core mfsdp_verify EXPORT mfsdp-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT mfsdp-targets NAMESPACE mfsdp:: DESTINATION ${package} COMPONENT development)
set(scenarios share/mfsdp/scenarios)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/mfsdp-config.cmake.in
  ${CMAKE_BINARY_DIR}/generated/mfsdp-config.cmake
  INSTALL_DESTINATION ${package} PATH_VARS scenarios NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/mfsdp-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/mfsdp-config.cmake
  ${CMAKE_BINARY_DIR}/generated/mfsdp-config-version.cmake
  DESTINATION ${package} COMPONENT development)
