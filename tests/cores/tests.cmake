foreach(cores_test ledger crowd machine)
  weir_test(cores-${cores_test} cores/${cores_test}.c INTERNAL)
endforeach()
target_link_options(test-cores-ledger PRIVATE -Wl,--wrap=getrusage)
