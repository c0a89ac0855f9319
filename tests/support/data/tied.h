/* A toy model in which one matrix is used three times: in block 1, in block 2 and in the head. */
#ifndef FL_TESTS_SUPPORT_DATA_TIED_H
#define FL_TESTS_SUPPORT_DATA_TIED_H

#include <frostline.h>

enum { TIED_LAYERS = 9, TIED_USES = 3, TIED_DIM = 24, TIED_BLOCKS = 3 };

/* The layers whose only parameter, "weight" [TIED_DIM, TIED_DIM], is the tied one. */
extern const int tied_layer[TIED_USES];

/* For the toy data set (toy.h). tied: whether the three are tied; otherwise each trains alone. */
fl_status tied_model(bool tied, float dropout, fl_model **out) FL_MUST_CHECK;

#endif
