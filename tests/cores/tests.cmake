foreach(cores_test ledger crowd machine)
  weir_test(cores-${cores_test} cores/${cores_test}.c INTERNAL)
endforeach()
