/* page.c: the page at /. The page is the same for everybody and needs no key; its data comes from /weir, which needs a
 * key. */
#include "page.h"
#include "serve.h"

#include "cli/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { NONCE_BYTES = 16 };

/* Only the style and the script that carry it count: of anything that got into the page otherwise nothing would be run. */
static bool make_nonce(char text[2 * NONCE_BYTES + 1])
{
    unsigned char bytes[NONCE_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

static void page_put(FILE *file, const char *mark, void *nonce)
{
    if (strcmp(mark, "nonce") == 0)
        fputs(nonce, file);
    else if (strcmp(mark, "version") == 0)
        text_html(file, weir_version());
}

void state_page(ws_request *request, void *all)
{
    char nonce[2 * NONCE_BYTES + 1], policy[320];
    char *text = NULL;
    size_t bytes = 0;
    (void)all;
    if (!make_nonce(nonce)) {
        ws_refuse(request, 500, "internal_error", "the system has no random bytes", 0);
        return;
    }
    snprintf(policy, sizeof policy,
             "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; img-src data:; "
             "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
             nonce, nonce);
    ws_add_header(request, "Content-Security-Policy", policy);
    ws_add_header(request, "X-Content-Type-Options", "nosniff");
    ws_add_header(request, "X-Frame-Options", "DENY");
    ws_add_header(request, "Referrer-Policy", "no-referrer");
    ws_add_header(request, "Cache-Control", "no-store");
    FILE *file = text_stream(&text, &bytes);
    text_page(file, serve_page, page_put, nonce);
    fclose(file);
    ws_answer_own(request, 200, "text/html; charset=utf-8", text, bytes);
}
