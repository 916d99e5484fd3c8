/* page.h: page.html as a text, made by the build. */
#ifndef WEIR_CLI_PAGE_H
#define WEIR_CLI_PAGE_H

extern const char page_html[];

#endif
