# The choice of engine, provider and device, over machines and engines that the tests make up.
weir_test(choice choice/choice.c choice/machine.c INTERNAL)
