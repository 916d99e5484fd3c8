/* choice_words.h: the words by which verbs are told what to choose: --engine, --provider, --device, --policy, --order,
 * --no-cpu. */
#ifndef WEIR_CLI_CHOICE_WORDS_H
#define WEIR_CLI_CHOICE_WORDS_H

#include <getopt.h>
#include <weir/choice.h>

/* Beyond the codes of a verb's own words. */
enum { CHOICE_ENGINE = 1024, CHOICE_PROVIDER, CHOICE_DEVICE, CHOICE_POLICY, CHOICE_ORDER, CHOICE_NO_CPU };

/* In a verb's list for getopt_long. */
#define CHOICE_WORDS                                                                                                   \
    {"engine", required_argument, NULL, CHOICE_ENGINE}, {"provider", required_argument, NULL, CHOICE_PROVIDER},        \
        {"device", required_argument, NULL, CHOICE_DEVICE}, {"policy", required_argument, NULL, CHOICE_POLICY},        \
        {"order", required_argument, NULL, CHOICE_ORDER},                                                              \
    {                                                                                                                  \
        "no-cpu", no_argument, NULL, CHOICE_NO_CPU                                                                     \
    }

/* Reads the word of that code, with optarg, into the options. Answers whether it is one of these. */
bool choice_word_read(int code, weir_choice_options *options);

#endif
