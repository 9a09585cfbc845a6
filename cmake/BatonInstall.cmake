# Installs programs, libraries with their headers, and the CMake package `baton`.

get_property(libraries GLOBAL PROPERTY BATON_LIBRARIES)
get_property(programs GLOBAL PROPERTY BATON_PROGRAMS)
if(programs)
  install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(libraries)
  install(TARGETS ${libraries} EXPORT baton-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  # The static libraries name these two in their link interface; both are empty once installed.
  install(TARGETS baton_options baton_sanitizers EXPORT baton-targets)
  install(EXPORT baton-targets NAMESPACE baton:: FILE baton-targets.cmake
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/baton)
  file(WRITE ${CMAKE_BINARY_DIR}/baton-config.cmake
"include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(tl-expected)
find_dependency(msgpack)
find_dependency(Boost 1.74)
include(\"\${CMAKE_CURRENT_LIST_DIR}/baton-targets.cmake\")
")
  include(CMakePackageConfigHelpers)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/baton-config-version.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/baton-config.cmake
                ${CMAKE_BINARY_DIR}/baton-config-version.cmake
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/baton)
  foreach(folder base wire policy)
    install(DIRECTORY ${CMAKE_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/baton
            FILES_MATCHING PATTERN "*.h")
  endforeach()
endif()
