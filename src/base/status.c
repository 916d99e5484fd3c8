/* Statuses and the thread's detail text. */
#include "base/system.h"

#include <stdarg.h>
#include <stdio.h>

enum { DETAIL = sizeof((wi_saved_detail *)0)->text };

static _Thread_local void *detail;  /* a text; NULL: no call of the thread has failed, or there was no host memory */
static _Thread_local bool wordless; /* there was no host memory for the detail */

const char *weir_version(void)
{
    return WEIR_VERSION_STRING;
}

const char *weir_detail(void)
{
    return detail ? detail : wordless ? "no host memory for the reason in words" : "";
}

void wi_detail_save(wi_saved_detail *saved)
{
    const char *text = detail ? detail : "";
    memcpy(saved->text, text, strlen(text) + 1);
}

static void set_detail(const char *text)
{
    wordless = !wi_own(&detail, DETAIL);
    if (!wordless)
        memcpy(detail, text, strlen(text) + 1);
}

void wi_detail_restore(const wi_saved_detail *saved)
{
    if (detail || saved->text[0])
        set_detail(saved->text);
}

void wi_detail_in_child(void)
{
    static char of_child[DETAIL];
    if (!detail)
        detail = of_child;
}

/* Drops an incomplete UTF-8 character at the end of a text that was cut. */
static void drop_partial_character(char *text, size_t length)
{
    size_t start = length;
    while (start > 0 && length - start < 3 && ((unsigned char)text[start - 1] & 0xC0) == 0x80)
        start--;
    if (start == 0)
        return;
    unsigned char lead = (unsigned char)text[start - 1];
    size_t whole = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (length - (start - 1) < whole)
        text[start - 1] = '\0';
}

/* Cuts a text that has no room for its end: behind a word, unless that is far away, and with "…". */
static void status_cut(char *text, size_t room)
{
    static const char more[] = "…";
    enum { FAR = 48 };
    if (room <= sizeof more) {
        drop_partial_character(text, room - 1);
        return;
    }
    size_t most = room - sizeof more, length = most;
    while (length > 0 && most - length < FAR && text[length] != ' ')
        length--;
    if (length == 0 || text[length] != ' ') {
        text[most] = '\0';
        drop_partial_character(text, most);
        length = strlen(text);
    }
    while (length > 0 && strchr(" ,;:(", text[length - 1]))
        length--;
    memcpy(text + length, more, sizeof more);
}

char *wi_shorten(const char *text, char *to, size_t room)
{
    size_t length = strlen(text);
    memmove(to, text, wi_min(length, room - 1));
    to[wi_min(length, room - 1)] = '\0';
    if (length >= room)
        status_cut(to, room);
    return to;
}

void wi_one_line(char *text)
{
    size_t length = strlen(text);
    while (length > 0 && strchr("\r\n", text[length - 1]))
        text[--length] = '\0';
    for (; *text; text++)
        if (*text == '\n' || *text == '\r')
            *text = ' ';
}

weir_status weir_fail(weir_status status, const char *format, ...)
{
    /* The arguments may contain the present detail ("loading x: <detail>"). So the new detail is written elsewhere
     * first. */
    char text[DETAIL];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0)
        text[0] = '\0';
    else if ((size_t)length >= sizeof text)
        status_cut(text, sizeof text);
    wi_one_line(text);
    set_detail(text);
    return status;
}
