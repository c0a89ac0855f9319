/* A file in the format of SQuAD 1.1 and 2.0: paragraphs, their questions, and the answers. */
#ifndef FL_DATA_SQUAD_SQUAD_FILE_H
#define FL_DATA_SQUAD_SQUAD_FILE_H

#include "data/squad/text_pool.h"
#include "data/tokens/content.h"

enum { FL_SQUAD_FILE_BYTES_MAX = 1 << 30, FL_SQUAD_ANSWERS_MAX = 1000 };

/* Where a question's answer lies in its context. */
typedef enum fl_squad_answer {
    FL_SQUAD_ANSWERED,   /* begin and end are code points */
    FL_SQUAD_IMPOSSIBLE, /* the context has no answer */
    FL_SQUAD_MISPLACED   /* no answer's text stands where answer_start says */
} fl_squad_answer;

typedef struct fl_squad_question {
    int32_t context;      /* the paragraph */
    int32_t kind;         /* fl_squad_answer */
    int32_t begin, end;   /* of the first answer that stands in its place */
    int64_t first_answer; /* its answers are those up to the next question's first one */
} fl_squad_question;

/* A struct of zeros holds nothing. */
typedef struct fl_squad_file {
    fl_text_pool contexts, texts, ids,
        answers;                  /* texts: of the questions, without leading spaces */
    fl_squad_question *questions; /* [texts.n] */
    size_t questions_room;
    int64_t n_impossible, n_misplaced;
    char misplaced[320]; /* where the first misplaced answer stands */
} fl_squad_file;

/* Read all of it. Returns FL_EFORMAT with the file, the place ("data[3].paragraphs[0].qas[2]"),
 * what was found and what is allowed; FL_ENOMEM. Nothing is held on failure. */
fl_status fl__squad_file_read(const fl_content *content, fl_squad_file *out) FL_MUST_CHECK;
void fl__squad_file_fini(fl_squad_file *file);

#endif
