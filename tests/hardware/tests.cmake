# What the machine has, and versions.
weir_test(hardware-versions hardware/versions.c)
