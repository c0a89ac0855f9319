/* Whether the stand-in's header and NVIDIA's agree: compiled with the plugin, linked nowhere. */
#include "tests/shim/cublaslt/constants.h"

#include <cublasLt.h>
#include <type_traits>

#define SAME_VALUE(name, value) static_assert((int)name == value, #name);
CUBLASLT_CONSTANTS(SAME_VALUE)

#define SAME_TYPE(name, result, parameters)                                                        \
    static_assert(std::is_same<decltype(&name), result(*) parameters>::value, #name);
CUBLASLT_FUNCTIONS(SAME_TYPE)

static_assert(sizeof(cublasLtMatmulAlgo_t) == 64, "an algorithm");
static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == 96, "what the heuristic answers");
