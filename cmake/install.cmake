# make install: headers, libraries, command, plug-ins, pkg-config file and CMake package.
