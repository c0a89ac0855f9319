/* From the content of a table's file to the cells that are wanted of each row. */
#ifndef FL_DATA_TABLE_ROWS_H
#define FL_DATA_TABLE_ROWS_H

#include "data/tokenizer/tokenizer.h"
#include "data/tokens/content.h"
#include "data/tokens/encode.h"

#include <stdbool.h>

/* The most bytes of a line. */
enum { FL_TABLE_COLUMNS_MAX = 4096, FL_TABLE_LINE_BYTES_MAX = 1 << 26 };

typedef enum fl_table_format { FL_TABLE_TSV, FL_TABLE_CSV, FL_TABLE_JSONL } fl_table_format;

/* By the ending of the file's name, .gz aside. FL_EINVAL for another one. */
fl_status fl__table_format_find(const char *path, fl_table_format *out) FL_MUST_CHECK;

/* What a column is for. */
typedef enum fl_table_use {
    FL_TABLE_TEXT,
    FL_TABLE_PAIR,
    FL_TABLE_LABEL,
    FL_TABLE_USES
} fl_table_use;

typedef struct fl_table_row {
    fl_text cell[FL_TABLE_USES]; /* bytes NULL: not wanted, or the column is optional and absent */
    int64_t line;                /* where the row begins, from 1 */
} fl_table_row;

typedef struct fl_table_rows {
    const fl_content *content; /* borrowed; the cells lie in it */
    fl_table_row *row;         /* [n] */
    size_t n, room;
} fl_table_rows;

/* Which columns are wanted. */
typedef struct fl_table_columns {
    const char *name[FL_TABLE_USES]; /* a name, or a number from 1; NULL: not wanted */
    bool label_optional;             /* a file without that column is fine */
} fl_table_columns;

/* Find the columns and read all rows. Cells are decoded in place, so content can be read once.
 * Returns FL_EFORMAT with the file and the line, FL_ENOMEM; nothing is held on failure. */
fl_status fl__table_rows_read(fl_content *content, const fl_table_columns *columns,
                              fl_table_rows *out) FL_MUST_CHECK;
void fl__table_rows_fini(fl_table_rows *rows);

/* Text and second text of each row; borrows the rows. */
fl_text_list fl__table_texts(const fl_table_rows *rows);

/* ---- between the parts of this module ---- */

/* Whether a column is given by its number, which must then be 1 .. FL_TABLE_COLUMNS_MAX. */
bool fl__table_column_number(const char *name, int *number);

/* Add an empty row. FL_ENOMEM */
fl_status fl__table_rows_add(fl_table_rows *rows, int64_t line, fl_table_row **out) FL_MUST_CHECK;

/* FL_EFORMAT: "data.text: FILE: line 1: no column 'x' found, allowed: 'a', 'b'" */
fl_status fl__table_no_column(const fl_content *content, int64_t line, fl_table_use use,
                              const char *name, const char *allowed) FL_MUST_CHECK;

/* FL_EFORMAT: "data.text: FILE: line 1: columns 1 and 3 are both named 'x', ..." */
fl_status fl__table_two_columns(const fl_content *content, int64_t line, fl_table_use use,
                                const char *name, int first, int second) FL_MUST_CHECK;

/* A cell for a message: cut where it is long, control characters replaced. Returns shown. */
enum { FL_TABLE_SHOWN_BYTES = 64, FL_TABLE_NAMES_BYTES = 400 };
const char *fl__table_shown(fl_text text, char shown[FL_TABLE_SHOWN_BYTES]);

/* Append "'NAME'" to a list of names, which ends in "..." once it is full. */
void fl__table_names_add(char text[FL_TABLE_NAMES_BYTES], fl_text name);

/* The rows of TSV and CSV (delimited.c), and of JSONL (jsonl.c). */
fl_status fl__table_delimited_read(fl_content *content, fl_table_format format,
                                   const fl_table_columns *columns,
                                   fl_table_rows *rows) FL_MUST_CHECK;
fl_status fl__table_jsonl_read(fl_content *content, const fl_table_columns *columns,
                               fl_table_rows *rows) FL_MUST_CHECK;

#endif
