# What engines that go on with a text have in common, without any engine.
foreach(part words answer choices ports listener runs ahead ring)
  weir_test(text-${part} text/${part}.c LIBS weir_text)
  target_include_directories(test-text-${part} PRIVATE ${PROJECT_SOURCE_DIR}/src)
endforeach()
target_link_options(test-text-listener PRIVATE -Wl,--wrap=pthread_mutex_lock,--wrap=pthread_cond_wait)
target_link_options(test-text-ahead PRIVATE -Wl,--wrap=posix_fadvise,--wrap=preadv2,--wrap=fopen,--wrap=pthread_create)
target_link_options(test-text-ring PRIVATE -Wl,--wrap=open,--wrap=pread,--wrap=preadv2,--wrap=pthread_create)
target_link_options(test-text-choices PRIVATE -Wl,--wrap=strtod)
