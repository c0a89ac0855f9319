/* Whether a page is well-formed: strict, as XML is, for a subset of it that our pages keep to. */
#ifndef FL_TESTS_SUPPORT_FORMATS_MARKUP_H
#define FL_TESTS_SUPPORT_FORMATS_MARKUP_H

#include <stddef.h>

/* The test fails, with the place, unless text [n] is a doctype and one element: every tag closed in
 * its order, attributes quoted and given once, '<' and '&' only as markup, entities known, all of
 * it UTF-8 without control characters. Nor may anything in it run or be loaded: no script, no
 * handler, no address. Returns the number of elements. */
int markup_check(const char *text, size_t n);

#endif
