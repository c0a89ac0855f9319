/* Short forms for tables of members (struct_json.h): FL_M_INT(fl_plan, K, 1, 128) is the member K
 * of an fl_plan, an int from 1 to 128. */
#ifndef FL_CONTROL_CHECKPOINT_MANIFEST_MEMBERS_H
#define FL_CONTROL_CHECKPOINT_MANIFEST_MEMBERS_H

#include "control/checkpoint/manifest/struct_json.h"

#define FL_M_INT(of, name_, from, to)                                                              \
    {                                                                                              \
        .name = #name_, .type = FL_MEMBER_INT, .offset = offsetof(of, name_), .least = (from),     \
        .most = (to)                                                                               \
    }
/* An int64_t from 0 up; one to which the run adds, so that the sum stays an int64_t; any int64_t;
 * any uint32_t. */
#define FL_M_COUNT(of, name_)                                                                      \
    {                                                                                              \
        .name = #name_, .type = FL_MEMBER_INT64, .offset = offsetof(of, name_), .least = 0,        \
        .most = INT64_MAX                                                                          \
    }
#define FL_M_SUM(of, name_)                                                                        \
    {                                                                                              \
        .name = #name_, .type = FL_MEMBER_INT64, .offset = offsetof(of, name_), .least = 0,        \
        .most = INT64_MAX / 2                                                                      \
    }
#define FL_M_NUMBER(of, name_)                                                                     \
    {                                                                                              \
        .name = #name_, .type = FL_MEMBER_INT64, .offset = offsetof(of, name_)                     \
    }
#define FL_M_NATURAL(of, name_)                                                                    \
    {                                                                                              \
        .name = #name_, .type = FL_MEMBER_UINT32, .offset = offsetof(of, name_)                    \
    }
#define FL_M_REAL(of, name_)                                                                       \
    {                                                                                              \
        .name = #name_, .type = FL_MEMBER_REAL, .offset = offsetof(of, name_)                      \
    }
#define FL_M_HASH(of, name_)                                                                       \
    {                                                                                              \
        .name = #name_, .type = FL_MEMBER_HASH, .offset = offsetof(of, name_)                      \
    }
#define FL_M_TEXT(of, name_)                                                                       \
    {                                                                                              \
        .name = #name_, .type = FL_MEMBER_TEXT, .offset = offsetof(of, name_),                     \
        .capacity = sizeof(((of *)0)->name_)                                                       \
    }
#define FL_M_TRUTH(of, name_)                                                                      \
    {                                                                                              \
        .name = #name_, .type = FL_MEMBER_BOOL, .offset = offsetof(of, name_)                      \
    }
#define FL_M_OBJECT(in, name_, table)                                                              \
    {                                                                                              \
        .name = #name_, .type = FL_MEMBER_OBJECT, .offset = offsetof(in, name_), .of = (table)     \
    }
/* items: a table of one; count_: the number of items, NULL: most_ */
#define FL_M_ARRAY(in, name_, items, most_, count_)                                                \
    {                                                                                              \
        .name = #name_, .type = FL_MEMBER_ARRAY, .offset = offsetof(in, name_), .of = (items),     \
        .capacity = (most_), .item_bytes = sizeof(((in *)0)->name_[0]), .count = (count_)          \
    }

#endif
