# The core: base, the host driver, memory, runtime, trace, engines.
foreach(core_test base options memory misuse pending limits placement threads fork runtime)
  weir_test(core-${core_test} core/${core_test}.c)
endforeach()
