# Install layout: header, both libraries, pkg-config file, CMake package, tool, man pages, documents.

install(FILES include/xorcast.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS xorcast_shared xorcast_static EXPORT xorcast
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET xorcast_cuda)
    install(TARGETS xorcast_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET xorcast_cli)
    # The tool has the library inside, and finds the plug-in in the installed library's folder.
    cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_FULL_BINDIR}
               OUTPUT_VARIABLE lib_from_bin)
    set_target_properties(xorcast_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
    install(TARGETS xorcast_cli DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# The prefix is written relative to the file, so that an installed tree may be moved.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}
           OUTPUT_VARIABLE pc_include)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}
           OUTPUT_VARIABLE pc_lib)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
           BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE pc_up)
configure_file(cmake/xorcast.pc.in xorcast.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/xorcast.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/xorcast)
configure_package_config_file(cmake/xorcast-config.cmake.in xorcast-config.cmake
    INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(xorcast-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/xorcast-config.cmake
              ${PROJECT_BINARY_DIR}/xorcast-config-version.cmake DESTINATION ${package_folder})
install(EXPORT xorcast NAMESPACE xorcast:: FILE xorcast-targets.cmake DESTINATION ${package_folder})

file(GLOB man_pages CONFIGURE_DEPENDS cli/*.1 docs/*.1)
install(FILES ${man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
file(GLOB documents CONFIGURE_DEPENDS README.md CHANGELOG.md LICENSE docs/*.md)
install(FILES ${documents} DESTINATION ${CMAKE_INSTALL_DOCDIR})
