# Opening a model, and moving on when a candidate fails: over a machine and an engine that the tests make up, on the host,
# the simulated device and CUDA's stub.
foreach(opening_test open stages runs threads)
  weir_device_test(opening-${opening_test} opening/${opening_test}.c opening/bed.c choice/machine.c)
  target_link_options(test-opening-${opening_test} PRIVATE
    -Wl,--wrap=weir_hardware_look,--wrap=weir_hardware_release,--wrap=weir_client_open)
  weir_sim_device_test(opening-${opening_test})
endforeach()
