/* The examples of a page, run as they stand there. A line "..." of the page stands for any lines,
 * and within a line for any text. */
#ifndef FL_TESTS_SUPPORT_FORMATS_PAGE_H
#define FL_TESTS_SUPPORT_FORMATS_PAGE_H

/* Run each "$ ..." of the page's console blocks in `folder`, with the program that was built first
 * on the path, and compare what it says; a difference fails the test. name: from the root of the
 * tree. Returns how many there were. */
int page_run(const char *name, const char *folder);

#endif
