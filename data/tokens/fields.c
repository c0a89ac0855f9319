#include "data/tokens/fields.h"

#include "data/tokenizer/files/tokenizer_open.h"
#include "device/errors/failure.h"
#include "device/text/plural.h"

#include <inttypes.h>

fl_status fl__field_tokenizer_open(const char *folder, fl_tokenizer **out)
{
    fl_status status = fl_tokenizer_open(folder, out);
    return status == FL_OK || status == FL_ENOMEM
               ? status
               : fl_fail_field(status, FL_FIELDS("data.tokenizer"), "%s", fl_errmsg());
}

fl_status fl__field_check_max_tokens(const fl_tokenizer *tokenizer, bool pair, int64_t max_tokens)
{
    char special[FL_COUNT_BYTES];
    int n_special = fl_tokenizer_n_special(tokenizer, pair);
    int64_t least = n_special + (pair ? 2 : 1);
    return max_tokens >= least
               ? FL_OK
               : fl_fail_field(FL_EINVAL, FL_FIELDS("data.max_tokens"),
                               "found %" PRId64 ", allowed: at least %" PRId64
                               ", for %s and one of %s text",
                               max_tokens, least, fl_count(n_special, "special token", special),
                               pair ? "each" : "the");
}

fl_status fl__field_name_path(fl_status status)
{
    return status == FL_OK || status == FL_ENOMEM || fl_failure_field(0) != NULL
               ? status
               : fl_fail_field(status, FL_FIELDS("data.path"), "%s", fl_errmsg());
}
