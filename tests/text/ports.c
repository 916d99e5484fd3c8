/* ports.c: inputs are what they say they are, messages are read one by one, and results lie in memory of the client's. */
#include "core/core.h"
#include "engines/text/text.h"

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

static weir_tensor text_of(const char *text)
{
    return (weir_tensor){.struct_size = sizeof(weir_tensor),
                         .name = "messages",
                         .type = WEIR_TYPE_TEXT,
                         .rank = 1,
                         .shape = {(int64_t)strlen(text)},
                         .data = (void *)text,
                         .bytes = strlen(text)};
}

static void test_bytes_are_a_row(void **state)
{
    (void)state;
    weir_tensor it = text_of("abc");
    ok(wt_check_bytes(&it, WEIR_TYPE_TEXT));
    fails(WEIR_ERR_INVALID, wt_check_bytes(&it, WEIR_TYPE_U8));
    assert_string_equal(weir_detail(), "the input 'messages' is of type text and must be u8");
    it.rank = 2;
    fails(WEIR_ERR_INVALID, wt_check_bytes(&it, WEIR_TYPE_TEXT));
    assert_string_equal(weir_detail(), "the input 'messages' has rank 2 and must have 1, its bytes");
    it.rank = 1;
    it.bytes = 2;
    fails(WEIR_ERR_INVALID, wt_check_bytes(&it, WEIR_TYPE_TEXT));
    assert_string_equal(weir_detail(), "the input 'messages' says 3 bytes by its shape and 2 by itself, at most "
                                       "2147483647 are taken");
    it = text_of("abc");
    it.data = NULL;
    fails(WEIR_ERR_INVALID, wt_check_bytes(&it, WEIR_TYPE_TEXT));
    it = text_of("");
    fails(WEIR_ERR_INVALID, wt_check_bytes(&it, WEIR_TYPE_TEXT));
    assert_string_equal(weir_detail(), "the input 'messages' is empty");
    /* A saved state may be larger than a text. */
    it = text_of("abc");
    it.shape[0] = (int64_t)(it.bytes = (size_t)INT32_MAX + 1);
    fails(WEIR_ERR_INVALID, wt_check_bytes(&it, WEIR_TYPE_TEXT));
    it.type = WEIR_TYPE_U8;
    ok(wt_check_bytes(&it, WEIR_TYPE_U8));
}

static void test_texts_are_copied_by_their_length(void **state)
{
    (void)state;
    weir_tensor it = text_of("abcdef");
    char *copy = NULL;
    it.bytes = 3;
    ok(wt_text_copy(&it, &copy));
    assert_string_equal(copy, "abc");
    free(copy);
    it = text_of("ab?d");
    for (size_t i = 0; i < it.bytes; i++) {
        char with_zero[] = "abcd";
        with_zero[i] = '\0';
        it.data = with_zero;
        fails(WEIR_ERR_INVALID, wt_text_copy(&it, &copy));
        assert_string_equal(weir_detail(), "the input 'messages' has a byte 0 in its text");
        assert_null(copy);
    }
}

static weir_tensor rows_of(const int32_t *tokens, int64_t rows, int64_t columns)
{
    return (weir_tensor){.struct_size = sizeof(weir_tensor),
                         .name = "tokens",
                         .type = WEIR_TYPE_I32,
                         .rank = rows > 0 ? 2 : 1,
                         .shape = {rows > 0 ? rows : columns, columns},
                         .data = (void *)tokens,
                         .bytes = (size_t)((rows > 0 ? rows : 1) * columns) * sizeof *tokens};
}

/* The processor reads them. A caller whose header is older has no such member. */
static void test_inputs_on_a_device_are_refused(void **state)
{
    (void)state;
    int32_t tokens[1] = {0};
    weir_tensor text = text_of("abc"), row = rows_of(tokens, 0, 1);
    text.on_device = row.on_device = true;
    fails(WEIR_ERR_INVALID, wt_check_bytes(&text, WEIR_TYPE_TEXT));
    assert_string_equal(weir_detail(), "the input 'messages' lies on a device and must be memory of the host's");
    fails(WEIR_ERR_INVALID, wt_check_tokens(&row, 1, 10, false));
    text.struct_size = offsetof(weir_tensor, on_device);
    ok(wt_check_bytes(&text, WEIR_TYPE_TEXT));
}

static void test_tokens_are_of_the_vocabulary(void **state)
{
    (void)state;
    static const int32_t good[] = {0, 9, 5, 1}, padded[] = {0, 9, 5, -1}, large[] = {0, 10}, small[] = {0, -2};
    weir_tensor it = rows_of(good, 0, 4);
    ok(wt_check_tokens(&it, 1, 10, false));
    it = rows_of(good, 2, 2);
    ok(wt_check_tokens(&it, 2, 10, false));
    fails(WEIR_ERR_INVALID, wt_check_tokens(&it, 1, 10, true));
    assert_string_equal(weir_detail(), "the input 'tokens' has rank 2 and must have 1");
    it.rank = 0;
    fails(WEIR_ERR_INVALID, wt_check_tokens(&it, 2, 10, true));
    assert_string_equal(weir_detail(), "the input 'tokens' has rank 0 and must have 1 or 2");
    it = rows_of(large, 0, 2);
    fails(WEIR_ERR_INVALID, wt_check_tokens(&it, 1, 10, true));
    assert_string_equal(weir_detail(), "the input 'tokens' holds 10 at place 1; the vocabulary has 0 to 9");
    it = rows_of(padded, 2, 2);
    ok(wt_check_tokens(&it, 2, 10, true));
    fails(WEIR_ERR_INVALID, wt_check_tokens(&it, 2, 10, false));
    it = rows_of(padded, 0, 4);
    fails(WEIR_ERR_INVALID, wt_check_tokens(&it, 2, 10, true));
    assert_string_equal(weir_detail(), "the input 'tokens' holds -1 at place 3; the vocabulary has 0 to 9");
    it = rows_of(small, 1, 2);
    fails(WEIR_ERR_INVALID, wt_check_tokens(&it, 2, 10, true));
    assert_string_equal(weir_detail(),
                        "the input 'tokens' holds -2 at place 1; the vocabulary has 0 to 9, and -1 fills a row up");
}

static void test_tokens_are_as_many_as_they_say(void **state)
{
    (void)state;
    static const int32_t good[] = {0, 9, 5, 1};
    weir_tensor it = rows_of(good, 0, 4);
    it.bytes = 12;
    fails(WEIR_ERR_INVALID, wt_check_tokens(&it, 1, 10, false));
    assert_string_equal(weir_detail(), "the input 'tokens' says 16 bytes by its shape and 12 by itself");
    it = rows_of(NULL, 0, 4);
    fails(WEIR_ERR_INVALID, wt_check_tokens(&it, 1, 10, false));
    it = rows_of(good, 0, 0);
    fails(WEIR_ERR_INVALID, wt_check_tokens(&it, 1, 10, false));
    assert_string_equal(weir_detail(), "the input 'tokens' is empty");
    it = rows_of(good, 0, 4);
    it.type = WEIR_TYPE_F32;
    fails(WEIR_ERR_INVALID, wt_check_tokens(&it, 1, 10, false));
    assert_string_equal(weir_detail(), "the input 'tokens' is of type f32 and must be i32");
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void test_messages_are_read_one_by_one(void **state)
{
    (void)state;
    static const char *const roles[] = {"system", "user", "assistant", "tool"}, *const texts[] = {"be\nbrief", "",
                                                                                                  "user 3\nabc", "7"};
    for (int end = 0; end < 2; end++) {
        char text[200];
        wt_messages read;
        snprintf(text, sizeof text, "system 8\n%s\nuser 0\n%s\nassistant 10\n%s\ntool 001\n%s%s", texts[0], texts[1],
                 texts[2], texts[3], end ? "\n" : "");
        weir_tensor it = text_of(text);
        ok(wt_messages_read(&it, &read));
        assert_int_equal(read.count, 4);
        for (size_t i = 0; i < 4; i++) {
            assert_string_equal(read.list[i].role, roles[i]);
            assert_string_equal(read.list[i].text, texts[i]);
        }
        wt_messages_drop(&read);
        assert_null(read.list);
    }
}

static void test_wrong_messages_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"x",
                                        "user",
                                        "user 1",
                                        "user\n1",
                                        "user \nx",
                                        "bot 1\nx",
                                        "use 1\nx",
                                        "user 2\nx",
                                        "user -1\nx",
                                        "user 1x\nx",
                                        "\n",
                                        "user 1\nx\n\n",
                                        "User 1\nx",
                                        "user  1\nx",
                                        " user 1\nx",
                                        "user :\n0123456789",
                                        "user 1\nx\nbot"};
    wt_messages read;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weir_tensor it = text_of(wrong[i]);
        fails(WEIR_ERR_INVALID, wt_messages_read(&it, &read));
        detail_names("has no such head, or is cut off; each is a line 'ROLE BYTES' (role: system, user, assistant or "
                     "tool), so many bytes of text, and a newline");
        assert_null(read.list);
    }
    detail_names("message 2");
    weir_tensor longer = text_of("user 1\nxy\n"), zero = text_of("user 3\na?b");
    fails(WEIR_ERR_INVALID, wt_messages_read(&longer, &read));
    detail_names("message 1 does not end with a newline where it says");
    zero.data = (char[]){"user 3\na\0b"};
    fails(WEIR_ERR_INVALID, wt_messages_read(&zero, &read));
    detail_names("message 1 has a byte 0 in its text");
}

static void test_messages_have_a_limit(void **state)
{
    (void)state;
    enum { MOST = 4096, BYTES = 8 }; /* "user 0\n\n" */
    char *text = calloc(MOST + 1, BYTES);
    wt_messages read;
    assert_non_null(text);
    for (size_t i = 0; i <= MOST; i++)
        memcpy(text + i * BYTES, "user 0\n\n", BYTES);
    weir_tensor it = text_of("");
    it.data = text;
    it.bytes = (size_t)MOST * BYTES;
    ok(wt_messages_read(&it, &read));
    assert_int_equal(read.count, MOST);
    wt_messages_drop(&read);
    it.bytes += BYTES;
    fails(WEIR_ERR_INVALID, wt_messages_read(&it, &read));
    assert_string_equal(weir_detail(), "the input 'messages' has more than 4096 messages");
    free(text);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static const int32_t tokens[] = {4, 5, 6, 7, 8, 9};

static wt_parts some_parts(void)
{
    wt_parts parts = {.count = 0};
    wt_parts_add(&parts, "text", WEIR_TYPE_TEXT, "abc", 3);
    wt_parts_add(&parts, "nothing", WEIR_TYPE_I32, NULL, 0);
    wt_parts_add_rows(&parts, "rows", WEIR_TYPE_I32, tokens, 2, 3);
    wt_parts_add(&parts, "state", WEIR_TYPE_U8, tokens, 5);
    return parts;
}

static void test_results_are_copies_in_the_clients_memory(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(MIB);
    weir_client *client = open_client(runtime, "model", 0, 0);
    wt_parts parts = some_parts();
    weir_outputs out = {.struct_size = sizeof out};
    ok(wt_hand_out(client, WEIR_KIND_DEVICE, &parts, &out));
    assert_int_equal(out.count, 4);
    assert_int_equal(take_snapshot(runtime).clients[0].live, UNIT);
    const weir_tensor *it = out.tensors;
    assert_string_equal(it[0].name, "text");
    assert_memory_equal(it[0].data, "abc", 3);
    assert_int_equal(it[0].bytes, 3);
    assert_int_equal(it[1].shape[0], 0);
    assert_null(it[1].data);
    assert_int_equal(it[2].rank, 2);
    assert_int_equal(it[2].shape[0], 2);
    assert_int_equal(it[2].shape[1], 3);
    assert_memory_equal(it[2].data, tokens, sizeof tokens);
    assert_int_equal(it[2].bytes, sizeof tokens);
    assert_int_equal((char *)it[2].data - (char *)it[0].data, 64);
    assert_int_equal(it[3].type, WEIR_TYPE_U8);
    assert_int_equal(it[3].rank, 1);
    assert_int_equal(it[3].bytes, 5);
    ok(wt_release_outputs(client, &out));
    assert_null(out.tensors);
    assert_int_equal(out.count, 0);
    assert_int_equal(take_snapshot(runtime).clients[0].live, 0);
    ok(wt_release_outputs(client, &out));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

static void test_results_that_do_not_fit_leave_nothing(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(MIB);
    weir_client *client = open_client(runtime, "model", 0, 128 * KIB);
    wt_parts parts = {.count = 0};
    weir_outputs out = {.struct_size = sizeof out};
    wt_parts_add(&parts, "logits", WEIR_TYPE_F32, NULL, 64 * KIB);
    fails(WEIR_ERR_OUT_OF_MEMORY, wt_hand_out(client, WEIR_KIND_DEVICE, &parts, &out));
    assert_null(out.engine_data);
    assert_int_equal(take_snapshot(runtime).clients[0].live, 0);
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

static void test_release_says_what_cannot_be_given_back(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(MIB);
    weir_client *client = open_client(runtime, "model", 0, 0), *other = open_client(runtime, "other", 0, 0);
    wt_parts parts = some_parts();
    weir_outputs out = {.struct_size = sizeof out};
    ok(wt_hand_out(client, WEIR_KIND_DEVICE, &parts, &out));
    void *data = out.tensors[0].data;
    fails(WEIR_ERR_FOREIGN, wt_release_outputs(other, &out));
    assert_null(out.engine_data);
    ok(weir_free(client, data, WEIR_STREAM_HOST));
    ok(weir_client_destroy(other));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

static void test_inputs_are_found_by_name(void **state)
{
    (void)state;
    wt_inputs in;
    weir_tensor given[2] = {text_of("abc"), text_of("abc")};
    weir_inference inference = {.struct_size = sizeof inference, .inputs = given, .input_count = 1};
    ok(wt_inputs_read(&inference, WT_CHATS, 9, &in));
    assert_ptr_equal(in.messages, &given[0]);
    assert_int_equal(in.prompts, 1);
    fails(WEIR_ERR_INVALID, wt_inputs_read(&inference, WT_EMBEDS, 9, &in));
    assert_string_equal(weir_detail(), "this model has no input 'messages'; it takes 'text' or 'tokens'");
    inference.input_count = 2;
    fails(WEIR_ERR_INVALID, wt_inputs_read(&inference, WT_RESUMES, 9, &in));
    assert_string_equal(weir_detail(), "the input 'messages' is there twice");
    given[1].name = "text";
    fails(WEIR_ERR_INVALID, wt_inputs_read(&inference, WT_RESUMES, 9, &in));
    assert_string_equal(weir_detail(), "one input is taken, 'text' or 'tokens' or 'messages', and there are 2");
    inference.input_count = 0;
    ok(wt_inputs_read(&inference, WT_RESUMES, 9, &in));
    assert_int_equal(in.prompts, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_are_a_row),
        cmocka_unit_test(test_texts_are_copied_by_their_length),
        cmocka_unit_test(test_inputs_on_a_device_are_refused),
        cmocka_unit_test(test_tokens_are_of_the_vocabulary),
        cmocka_unit_test(test_tokens_are_as_many_as_they_say),
        cmocka_unit_test(test_messages_are_read_one_by_one),
        cmocka_unit_test(test_wrong_messages_are_refused),
        cmocka_unit_test(test_messages_have_a_limit),
        cmocka_unit_test(test_inputs_are_found_by_name),
        cmocka_unit_test(test_results_are_copies_in_the_clients_memory),
        cmocka_unit_test(test_results_that_do_not_fit_leave_nothing),
        cmocka_unit_test(test_release_says_what_cannot_be_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
