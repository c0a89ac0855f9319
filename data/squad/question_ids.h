/* The ids of questions, which name them in predictions: no two may be equal. */
#ifndef FL_DATA_SQUAD_QUESTION_IDS_H
#define FL_DATA_SQUAD_QUESTION_IDS_H

#include "data/squad/text_pool.h"

/* path  for the message
 * Returns FL_EFORMAT with the first question, from 1, that has the id of another one; FL_ENOMEM */
fl_status fl__question_ids_check(const char *path, const fl_text_pool *ids) FL_MUST_CHECK;

#endif
