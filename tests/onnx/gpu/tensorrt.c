/* The TensorRT provider's options, over stubs of its libraries, with which it can be opened but makes no engine. */
#include "../common.h"

/* The first options are good. */
static void fails_by(const char *option)
{
    loaded l = open_client(0);
    const char *const settings[] = {"provider=tensorrt", "tensorrt.trt_fp16_enable=1",
                                    "tensorrt.trt_max_workspace_size=1048576", option, NULL};
    assert_status(load_into(&l, "mlp", settings), WEIR_ERR_INVALID);
    assert_detail("an option of tensorrt");
    assert_int_equal(live(&l), 0);
    close_client(&l);
}

static void options_reach_it(void **state)
{
    (void)state;
    fails_by("tensorrt.no_such_option=1");
    assert_detail("no_such_option");
    fails_by("tensorrt.trt_max_partition_iterations=many");
    assert_detail("trt_max_partition_iterations");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(options_reach_it)};
    int status = need_cuda_build();
    return status ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
