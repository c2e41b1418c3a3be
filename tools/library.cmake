# libbmojo.so: the engine behind one header, include/bmojo/bmojo.h. It is a shared library that shows
# the names of that header and no others, so a program that links it needs neither the libraries nor
# the headers that the engine is made of, and may use other versions of them.
target_include_directories(bmojo_library PRIVATE include)
target_compile_definitions(bmojo_library PRIVATE BMOJO_QUALIFIED_NAMES
  BMOJO_LIBRARY_VERSION="${PROJECT_VERSION}")
set_target_properties(bmojo_base bmojo_model bmojo_data bmojo_kernels bmojo_memory bmojo_eval
  bmojo_infer bmojo_library PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON)

add_library(libbmojo SHARED $<TARGET_OBJECTS:bmojo_library>)
target_link_libraries(libbmojo PRIVATE bmojo_infer)
target_include_directories(libbmojo INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
target_compile_features(libbmojo INTERFACE cxx_std_20)
set(exported ${PROJECT_SOURCE_DIR}/tools/libbmojo.map)
target_link_options(libbmojo PRIVATE -Wl,--version-script=${exported})
# Until 1.0 every minor version may change the binary interface.
set_target_properties(libbmojo PROPERTIES OUTPUT_NAME bmojo EXPORT_NAME bmojo LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  LINK_DEPENDS ${exported} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
add_dependencies(libbmojo bmojo-sentencepiece)

# Found by find_package(bmojo) and by pkg-config, wherever the folder is moved to.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/bmojo)
install(TARGETS libbmojo EXPORT bmojo INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS bmojo-sentencepiece DESTINATION ${CMAKE_INSTALL_LIBDIR}/bmojo)
install(FILES include/bmojo/bmojo.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bmojo)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT bmojo NAMESPACE bmojo:: FILE bmojoConfig.cmake DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/bmojoConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(tools/bmojo.pc.in ${CMAKE_BINARY_DIR}/bmojo.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/bmojoConfigVersion.cmake DESTINATION ${package})
install(FILES ${CMAKE_BINARY_DIR}/bmojo.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
