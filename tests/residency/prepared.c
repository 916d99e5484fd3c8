/* Memory for copies that is made ahead, by public calls alone: on the host, on cuda over the stub, and on a GPU. */
#include "residency/residency.h"

enum { BLOCKS = 10, EACH = 4 << 20 };

static uint64_t ready(weir_client *client)
{
    weir_preparation now = WEIR_INIT(weir_preparation);
    ok(weir_client_preparation(client, &now));
    assert_int_equal(now.status, WEIR_OK);
    return now.ready;
}

/* Twice, so that memory is given back and made again: all that leaves fits into what is prepared. */
static void the_first_suspend_finds_its_memory(void **state)
{
    fixture *f = *state;
    weir_prepare_options wait = {.struct_size = sizeof wait, .wait = true};
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = allocate(f->model, EACH, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        write_block(f->runtime, blocks[i], EACH, (uint64_t)i);
    }
    for (int round = 0; round < 2; round++) {
        ok(weir_client_prepare(f->model, &wait));
        uint64_t bytes = ready(f->model);
        assert_int_equal(bytes, host_writes() ? 0 : (uint64_t)BLOCKS * EACH);
        weir_residency receipt = suspend(f->model);
        assert_int_equal(receipt.stored, (uint64_t)BLOCKS * EACH);
        assert_int_equal(ready(f->model), 0);
        ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
        for (int i = 0; i < BLOCKS; i++)
            block_holds(f->runtime, blocks[i], EACH, (uint64_t)i);
        (void)weir_client_forget_copies(f->model);
    }
    ok(weir_client_prepare(f->model, NULL)); /* a close in the middle of it */
    for (int i = 0; i < BLOCKS; i++)
        ok(weir_free(f->model, blocks[i], WEIR_STREAM_HOST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_first_suspend_finds_its_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
