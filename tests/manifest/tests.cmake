# Manifests: what is read from them, and what is wrong with them.
if(NOT TARGET weir_manifest)
  return()
endif()
foreach(manifest_test read problems)
  weir_test(manifest-${manifest_test} manifest/${manifest_test}.c LIBS weir_manifest)
endforeach()

# The clock and the disk are the test's.
if(WEIR_PACKAGES AND ARCHIVE_FOUND)
  weir_test(manifest-packages manifest/packages.c LIBS weir_manifest_objects PkgConfig::ARCHIVE)
  target_link_options(test-manifest-packages PRIVATE -Wl,--wrap=time,--wrap=fstatvfs)
endif()
