# Manifests: what is read from them, and what is wrong with them.
if(NOT TARGET weir_manifest)
  return()
endif()
foreach(manifest_test read problems)
  weir_test(manifest-${manifest_test} manifest/${manifest_test}.c LIBS weir_manifest)
endforeach()

weir_test(manifest-hostile manifest/hostile.c LIBS weir_manifest_objects)
add_test(NAME manifest-hostile-long COMMAND test-manifest-hostile)
set_tests_properties(manifest-hostile-long PROPERTIES LABELS long ENVIRONMENT WEIR_MANIFEST_ROUNDS=100000)

# What is said where a library was left out.
weir_test(manifest-without manifest/without.c ${PROJECT_SOURCE_DIR}/src/cli/manifest.c
  ${PROJECT_SOURCE_DIR}/src/manifest/package_none.c LIBS weir_base PkgConfig::JANSSON)
target_include_directories(test-manifest-without PRIVATE ${PROJECT_SOURCE_DIR}/src)

# Memory is the test's.
weir_test(manifest-faults manifest/faults.c LIBS weir_manifest_objects)
target_link_options(test-manifest-faults PRIVATE
  -Wl,--wrap=malloc,--wrap=calloc,--wrap=free,--wrap=strdup,--wrap=strndup,--wrap=asprintf,--wrap=vasprintf
  -Wl,--wrap=__asprintf_chk,--wrap=__vasprintf_chk)

# The clock and the disk are the test's.
if(WEIR_PACKAGES AND ARCHIVE_FOUND)
  weir_test(manifest-packages manifest/packages.c LIBS weir_manifest_objects PkgConfig::ARCHIVE)
  target_link_options(test-manifest-packages PRIVATE -Wl,--wrap=time,--wrap=fstatvfs)
  weir_test(manifest-gzip manifest/gzip.c LIBS weir_manifest_objects PkgConfig::ARCHIVE)
  weir_test(manifest-clearing manifest/clearing.c LIBS weir_manifest_objects PkgConfig::ARCHIVE)
  foreach(on_a_disk gzip clearing)
    target_link_options(test-manifest-${on_a_disk} PRIVATE -Wl,--wrap=fstatvfs)
  endforeach()
  target_link_options(test-manifest-clearing PRIVATE -Wl,--wrap=flock)
endif()

# A million hostile texts, where the compiler can steer towards new ones.
if(WEIR_HAVE_FUZZER)
  get_target_property(fuzzed weir_manifest_objects SOURCES)
  list(TRANSFORM fuzzed PREPEND ${PROJECT_SOURCE_DIR}/src/manifest/)
  add_executable(fuzz-manifest manifest/fuzz.c ${fuzzed})
  target_compile_definitions(fuzz-manifest PRIVATE _GNU_SOURCE)
  target_include_directories(fuzz-manifest PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_compile_options(fuzz-manifest PRIVATE -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined)
  target_link_options(fuzz-manifest PRIVATE -fsanitize=fuzzer,address,undefined)
  target_link_libraries(fuzz-manifest PRIVATE weir weir_base PkgConfig::JANSSON $<TARGET_NAME_IF_EXISTS:PkgConfig::ARCHIVE>)
  set_target_properties(fuzz-manifest PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fuzz-manifest-found)
  add_test(NAME manifest-fuzz COMMAND fuzz-manifest -runs=1000000 -max_len=1000 -seed=1 -verbosity=0 -rss_limit_mb=4096
    -dict=${CMAKE_CURRENT_SOURCE_DIR}/manifest/words.dict ${PROJECT_BINARY_DIR}/tests/fuzz-manifest-found
    ${CMAKE_CURRENT_SOURCE_DIR}/manifest/seeds)
  set_tests_properties(manifest-fuzz PROPERTIES LABELS long)
endif()
