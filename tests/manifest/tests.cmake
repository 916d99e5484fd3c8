# Manifests: what is read from them, and what is wrong with them.
if(NOT TARGET weir_manifest)
  return()
endif()
foreach(manifest_test read problems)
  weir_test(manifest-${manifest_test} manifest/${manifest_test}.c LIBS weir_manifest)
endforeach()
