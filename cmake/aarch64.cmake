# Cross-builds for arm64 with Debian's compiler; tests run under qemu. WEIR_ARM64_SYSROOT (environment or cache) is a
# folder with arm64 libraries unpacked in it, as scripts/cross-arm64 makes one.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# The emulator pays, for good, for addresses that are only reserved, and is as slow as a sanitizer.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu -E WEIR_RANGE=1GiB -E WEIR_SANITIZED=emulated)
set(CMAKE_FIND_ROOT_PATH $ENV{WEIR_ARM64_SYSROOT} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
