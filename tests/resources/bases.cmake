# The bases direct, async and segments from the inside: over a driver that fails, and one that gives the addresses it
# is told.
foreach(base index single single-order race segments shortage)
  string(REPLACE - _ file ${base})
  weir_test(bases-${base} resources/bases_${file}.c core/faulty.c INTERNAL)
  target_include_directories(test-bases-${base} PRIVATE core)
endforeach()
