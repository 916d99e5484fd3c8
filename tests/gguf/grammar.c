/* grammar.c: grammars are read without llama.cpp. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <weir/weir.h>

#include "gguf/engine/check.h"

static bool is_one(const void *user, const char *text, size_t count)
{
    return count == strlen(user) && memcmp(text, user, count) == 0;
}

static weir_status check(const char *grammar)
{
    const wg_grammar_tokens tokens = {286, is_one, "<think>"};
    return wg_grammar_check(grammar, &tokens);
}

static void test_grammars_that_llama_cpp_takes_are_taken(void **state)
{
    (void)state;
    static const char *const good[] = {
        "root ::= \"a\"",
        "root ::= \"\"",
        "root ::=",
        "\n# first\n root ::= \"a\" # one\n\n",
        "root ::= a b\na ::= \"x\" |\n \"y\"\r\nb ::= [a-z\\]\\-]",
        "root ::= (\"a\"\n | \"b\")* [^\\n]{2} .{1,} .{ 1 , 3 } [0-9]+ \"c\"?",
        "root ::= \"\\x41\\u0041\\U00000041\\t\\r\\n\\\\\\\"\\[\\]\\-\"",
        "root ::= <[285]> !<[0]> <think> !<think>",
        "root ::= \"(\" root \")\" | \"x\"",
        "root ::= (\"a\"?)* \"b\"",
        "root ::= ws root-2\nroot-2 ::= ws \"x\"\nws ::= [ \\t\\n]*",
        "root ::= \"a\"** \"b\"",
        "root ::= \"a\"{2000}",
        "root ::= \"a\"{2000,}",
        "root ::= \"a\"{0,2000}",
        "root ::= \"Ã¤â¬ð\"",
        "root ::= b\nroot ::= \"a\"\nb ::= \"x\"",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        weir_status status = check(good[i]);
        if (status != WEIR_OK)
            print_error("%s\n%s\n", good[i], weir_detail());
        assert_int_equal(status, WEIR_OK);
    }
}

static void refused(const char *grammar, const char *words)
{
    assert_int_equal(check(grammar), WEIR_ERR_INVALID);
    if (!strstr(weir_detail(), words))
        print_error("'%s' is not in: %s\n", words, weir_detail());
    assert_non_null(strstr(weir_detail(), words));
}

static void test_bad_grammars_are_refused_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *words;
    } bad[] = {
        {"root", "'::='"},
        {"root ::= \"a", "too early"},
        {"root ::= (\"a\"", "')'"},
        {"root ::= a", "missing"},
        {"a ::= \"b\"", "'root'"},
        {"root ::= *", "nothing to repeat"},
        {"root ::= \"\"*", "nothing to repeat"},
        {"root ::= \"a\"{", "number"},
        {"root ::= \"a\"{2", "'}'"},
        {"root ::= \"a\"{5,2}", "fewer"},
        {"root ::= \"a\"{3000}", "2000"},
        {"root ::= \"a\"{2001}", "2000"},
        {"root ::= \"a\"{2001,}", "2000"},
        {"root ::= \"a\"{0,2001}", "2000"},
        {"root ::= \"a\"{99999999999999999999999}", "2000"},
        {"root ::= \"\\q\"", "escape"},
        {"root ::= \"\\x4\"", "hexadecimal"},
        {"root ::= [a", "too early"},
        {"root ::= <[286]>", "no such token"},
        {"root ::= <nothing>", "not one token"},
        {"root ::= !a", "<>"},
        {"root ::= \"a\" $", "end of the line"},
        {"root ::= \"a\"\n\n::= b", "line 3"},
        {"root ::= root \"a\" | \"b\"", "left recursion"},
        {"root ::= a\na ::= b \"x\"\nb ::= root | \"y\"", "left recursion"},
        {"root ::= e root \"z\" | \"x\"\ne ::= f\nf ::= \"\" | \"y\"", "left recursion"},
        {"root ::= root* | \"x\"", "left recursion"},
        {"root ::= root+ | \"x\"", "left recursion"},
        {"root ::= root{1,} | \"x\"", "left recursion"},
        {"root ::= root{2} | \"x\"", "left recursion"},
        {"root ::= (\"\" | \"a\") (\"b\"? root)* \"c\"", "left recursion"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i].grammar, bad[i].words);
    refused("root ::= \"a\"\nb ::= \"c\" }", "line 2: the end of the line");
}

/* Each at its limit and one beyond. */
static void test_grammars_end_at_their_limits(void **state)
{
    (void)state;
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    for (int beyond = 0; beyond < 2; beyond++) {
        char *to = text + sprintf(text, "root ::= ");
        for (int i = 0; i < 64 + beyond; i++)
            to += sprintf(to, "(");
        to += sprintf(to, "\"a\"");
        for (int i = 0; i < 64 + beyond; i++)
            to += sprintf(to, ")");
        assert_int_equal(check(text), beyond ? WEIR_ERR_INVALID : WEIR_OK);

        to = text + sprintf(text, "root ::= \"a\"");
        for (int i = 0; i < 4095 + beyond; i++)
            to += sprintf(to, "\nr%d ::= \"b\"", i);
        assert_int_equal(check(text), beyond ? WEIR_ERR_INVALID : WEIR_OK);

        /* 15 doublings are 65,535 ways, 16 are more than are taken. */
        to = text + sprintf(text, "root ::= r0");
        for (int i = 0; i < 15 + beyond; i++)
            to += sprintf(to, "\nr%d ::= r%d | r%d", i, i + 1, i + 1);
        sprintf(to, "\nr%d ::= \"a\"", 15 + beyond);
        assert_int_equal(check(text), beyond ? WEIR_ERR_INVALID : WEIR_OK);

        to = text + sprintf(text, "root ::= r0");
        for (int i = 0; i < 999 + beyond; i++)
            to += sprintf(to, "\nr%d ::= r%d", i, i + 1);
        sprintf(to, "\nr%d ::= \"a\"", 999 + beyond);
        assert_int_equal(check(text), beyond ? WEIR_ERR_INVALID : WEIR_OK);

        to = text + sprintf(text, "root ::= \"a\"");
        memset(to, ' ', 1 << 18);
        text[(1 << 17) - 1 + beyond] = 0;
        assert_int_equal(check(text), beyond ? WEIR_ERR_INVALID : WEIR_OK);
    }
    /* One behind the other, parentheses are not nested. */
    char *groups = text + sprintf(text, "root ::=");
    for (int i = 0; i < 100; i++)
        groups += sprintf(groups, " (\"a\")");
    assert_int_equal(check(text), WEIR_OK);
    /* 530 letters 2000 times are a million elements, and llama.cpp would make all of them. */
    char *to = text + sprintf(text, "root ::= \"");
    memset(to, 'a', 530);
    strcpy(to + 530, "\"{2000}");
    refused(text, "too much");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grammars_that_llama_cpp_takes_are_taken),
        cmocka_unit_test(test_bad_grammars_are_refused_with_their_line),
        cmocka_unit_test(test_grammars_end_at_their_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
