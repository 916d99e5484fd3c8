#include "choice_words.h"

bool choice_word_read(int code, weir_choice_options *options)
{
    const char **texts[] = {&options->engine, &options->provider, &options->device, &options->policy, &options->order};
    if (code == CHOICE_NO_CPU)
        options->no_cpu = true;
    else if (code >= CHOICE_ENGINE && code <= CHOICE_ORDER)
        *texts[code - CHOICE_ENGINE] = optarg;
    else
        return false;
    return true;
}
