/* page.h: the page at /, as a text; page.html is its source. */
#ifndef WEIR_CLI_SERVE_PAGE_H
#define WEIR_CLI_SERVE_PAGE_H

extern const char serve_page[];

#endif
