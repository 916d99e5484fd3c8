# make install: headers, libraries, command, plug-ins, pkg-config file, CMake package, and the scripts that fetch engines.
# The installed tree may be moved: everything in it finds the rest relative to itself.
include(CMakePackageConfigHelpers)

set(cmake_package ${CMAKE_INSTALL_LIBDIR}/cmake/weir)
set(libraries weir)
if(TARGET weir_manifest)
  list(APPEND libraries weir_manifest)
  set_target_properties(weir_manifest PROPERTIES INSTALL_RPATH "$ORIGIN")
endif()
foreach(library IN LISTS libraries)
  install(TARGETS ${library} ${library}_static EXPORT weirTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_SKIP
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(TARGETS ${library} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_ONLY)
endforeach()
# What the Python package and weir/cccl.hpp let frameworks allocate through, beside libweir.
set_target_properties(weir-seams PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS weir-seams EXPORT weirTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_SKIP)
install(TARGETS weir-seams LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_ONLY)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/weir DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# $ORIGIN-relative, unless somebody installs into absolute directories of their own.
file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
if(TARGET weir_command)
  set_target_properties(weir_command weir_sim_command weir_bench_command PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS weir_command weir_sim_command weir_bench_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET weir_serve)
  install(FILES ${PROJECT_SOURCE_DIR}/packaging/weir.service DESTINATION lib/systemd/system)
  install(FILES ${PROJECT_SOURCE_DIR}/packaging/weir.json DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()

# Beside libweir, where the command looks for it.
if(TARGET weir-preload)
  install(TARGETS weir-preload LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

# Every module of the engines' rooms is a plug-in.
foreach(engine onnx/engine gguf/engine engines/llm)
  if(NOT WEIR_ENGINES OR (engine STREQUAL "gguf/engine" AND NOT WEIR_HAVE_LLAMA))
    continue()
  endif()
  get_property(targets DIRECTORY ${PROJECT_SOURCE_DIR}/src/${engine} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL MODULE_LIBRARY)
      set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/..")
      install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/weir)
    endif()
  endforeach()
endforeach()

# An installed weir can fetch its engines too: PREFIX/share/weir/scripts/engines.
foreach(script engines models venv)
  if(EXISTS ${PROJECT_SOURCE_DIR}/scripts/${script})
    install(PROGRAMS scripts/${script} DESTINATION ${CMAKE_INSTALL_DATADIR}/weir/scripts)
  endif()
endforeach()
file(GLOB store_files ${PROJECT_SOURCE_DIR}/scripts/*.py ${PROJECT_SOURCE_DIR}/scripts/pins.json
  ${PROJECT_SOURCE_DIR}/scripts/real-models.json
  ${PROJECT_SOURCE_DIR}/scripts/requirements.txt)
install(FILES ${store_files} DESTINATION ${CMAKE_INSTALL_DATADIR}/weir/scripts)
# What scripts/engines compiles against the llama.cpp that it has put into the store.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/gguf/engine DESTINATION ${CMAKE_INSTALL_DATADIR}/weir/gguf)
foreach(room engines/text gguf/file interpose)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${room}/*.[ch])
  install(FILES ${sources} DESTINATION ${CMAKE_INSTALL_DATADIR}/weir/${room})
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/src/engines/command.h DESTINATION ${CMAKE_INSTALL_DATADIR}/weir/engines)
set(base_of_engines internal.h maps.c maps.h probes.h stamp.h)
list(TRANSFORM base_of_engines PREPEND ${PROJECT_SOURCE_DIR}/src/base/ OUTPUT_VARIABLE sources)
install(FILES ${sources} DESTINATION ${CMAKE_INSTALL_DATADIR}/weir/base)

install(EXPORT weirTargets NAMESPACE weir:: DESTINATION ${cmake_package})
configure_package_config_file(cmake/weirConfig.cmake.in ${PROJECT_BINARY_DIR}/weirConfig.cmake
  INSTALL_DESTINATION ${cmake_package} NO_SET_AND_CHECK_MACRO)
# 0.x promises nothing from one minor version to the next.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/weirConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weirConfig.cmake ${PROJECT_BINARY_DIR}/weirConfigVersion.cmake
  DESTINATION ${cmake_package})

if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  string(REGEX REPLACE "/$" "" pc_prefix "\${pcfiledir}/${pc_prefix}")
endif()
# An absolute directory stays what it is.
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY "\${prefix}" OUTPUT_VARIABLE pc_libdir)
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_INCLUDEDIR BASE_DIRECTORY "\${prefix}" OUTPUT_VARIABLE pc_includedir)
foreach(library IN LISTS libraries)
  string(REPLACE "_" "-" library ${library})
  configure_file(cmake/${library}.pc.in ${PROJECT_BINARY_DIR}/${library}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${library}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR} VERBATIM)
