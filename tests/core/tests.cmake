# The core: base, the host driver, memory, runtime, trace, engines.
foreach(core_test base options memory misuse pending limits placement threads fork runtime trace structs logging)
  weir_test(core-${core_test} core/${core_test}.c)
endforeach()
weir_test(core-host core/host.c INTERNAL)
weir_test(core-faults core/faults.c core/faulty.c INTERNAL)
target_link_options(test-core-faults PRIVATE -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc)
weir_test(core-ladder core/ladder.c core/faulty.c INTERNAL)
target_link_options(test-core-ladder PRIVATE -Wl,--wrap=wi_pending_reap,--wrap=wi_pending_wait,--wrap=wi_record_locked
  -Wl,--wrap=wi_ledger_settle,--wrap=wi_ledger_retire,--wrap=wi_ledger_reap,--wrap=wi_ledger_account_snapshot)
weir_test(core-between core/between.c core/faulty.c INTERNAL)
target_link_options(test-core-between PRIVATE -Wl,--wrap=wi_record_to,--wrap=wi_runtime_create_of
  -Wl,--wrap=wi_ledger_settle,--wrap=wi_ledger_retire,--wrap=wi_ledger_reap)
weir_test(core-get core/get.c INTERNAL)
target_link_options(test-core-get PRIVATE
  -Wl,--wrap=pthread_mutex_lock,--wrap=pthread_rwlock_rdlock,--wrap=pthread_rwlock_wrlock)

include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
# weir_device_test(NAME SOURCES…): on the host, and as NAME-stub on cuda over the stub.
function(weir_device_test name)
  weir_test(${name} ${ARGN} INTERNAL)
  if(TARGET stub-cuda)
    add_dependencies(test-${name} stub-cuda)
    add_test(NAME ${name}-stub COMMAND test-${name})
    set_tests_properties(${name}-stub PROPERTIES TIMEOUT 120
      ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_TOTAL=0x10000000")
  endif()
endfunction()
weir_device_test(core-scrub core/scrub.c core/faulty.c)
weir_test(core-reserve core/reserve.c core/faulty.c INTERNAL)
weir_test(core-parts core/parts.c core/faulty.c INTERNAL)
weir_device_test(core-kinds core/kinds.c core/faulty.c)
add_test(NAME core-kinds-sim COMMAND test-core-kinds)
set_tests_properties(core-kinds-sim PROPERTIES TIMEOUT 120 ENVIRONMENT WEIR_TEST_DEVICE=sim:0)

# Plug-ins: a good one, and one for each way to be none.
weir_test(core-model core/model.c)
function(weir_test_plugin name)
  add_library(test-plugin-${name} MODULE core/plugin.c)
  target_include_directories(test-plugin-${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(test-plugin-${name} PRIVATE ${ARGN})
  set_target_properties(test-plugin-${name} PROPERTIES PREFIX "" OUTPUT_NAME weir-engine-${name}
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/plugins)
  add_dependencies(test-core-model test-plugin-${name})
endfunction()
weir_test_plugin(good PLUGIN_NAME="good")
weir_test_plugin(no-entry PLUGIN_NAME="no-entry" NO_ENTRY)
weir_test_plugin(no-table PLUGIN_NAME="no-table" NO_TABLE)
weir_test_plugin(newer-abi PLUGIN_NAME="newer-abi" NEWER_ABI)
weir_test_plugin(small-table PLUGIN_NAME="small-table" SMALL_TABLE)
weir_test_plugin(other-name PLUGIN_NAME="otherwise")
weir_test_plugin(no-load PLUGIN_NAME="no-load" NO_LOAD)
weir_test_plugin(bad_name PLUGIN_NAME="bad_name")
file(WRITE ${PROJECT_BINARY_DIR}/tests/plugins/weir-engine-no-library.so "no library\n")
