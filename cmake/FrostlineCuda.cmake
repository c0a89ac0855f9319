# The CUDA plugin, where nvcc is found: the target cuda_plugin compiles the kernels for every
# architecture of the list that this nvcc knows, warnings as errors, and links libfrostline_cuda.so.
# Nothing else of the build needs CUDA.
find_program(FL_NVCC nvcc HINTS "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin)
# 80 runs on 86 and 89 as well.
set(FL_CUDA_ARCHITECTURES 70 75 80 90 100 CACHE STRING
    "Compute capabilities that the CUDA kernels are compiled for, if nvcc knows them")
option(FL_CUDA_ENDS "Compile the CUDA kernels only for the oldest and the newest of these, to find errors" OFF)
if(NOT FL_NVCC)
  return()
endif()

# The parameters of a launch may have 32 KB from this version on.
set(oldest 12.1)
execute_process(COMMAND "${FL_NVCC}" --version OUTPUT_VARIABLE version ERROR_QUIET)
string(REGEX MATCH "release ([0-9.]+)" version "${version}")
if(CMAKE_MATCH_1 VERSION_LESS oldest)
  message(STATUS "CUDA kernels: not compiled, ${FL_NVCC} is older than ${oldest}")
  return()
endif()
execute_process(COMMAND "${FL_NVCC}" --list-gpu-arch OUTPUT_VARIABLE known RESULT_VARIABLE failed)
if(failed)
  message(WARNING "${FL_NVCC} does not run, so the CUDA kernels are not compiled")
  return()
endif()
set(chosen)
foreach(number IN LISTS FL_CUDA_ARCHITECTURES)
  if(known MATCHES "compute_${number}\n")
    list(APPEND chosen ${number})
  endif()
endforeach()
if(FL_CUDA_ENDS AND chosen)
  list(GET chosen 0 -1 chosen)
  list(REMOVE_DUPLICATES chosen)
endif()
set(code)
foreach(number IN LISTS chosen)
  list(APPEND code -gencode arch=compute_${number},code=sm_${number})
endforeach()
# The driver compiles the last one anew for devices that are newer than nvcc.
if(chosen)
  list(GET chosen -1 newest)
  list(APPEND code -gencode arch=compute_${newest},code=compute_${newest})
endif()
# What nobody runs is compiled as fast as nvcc can.
if(FL_CUDA_ENDS)
  execute_process(COMMAND "${FL_NVCC}" --help OUTPUT_VARIABLE options ERROR_QUIET)
  if(options MATCHES "--Ofast-compile")
    list(APPEND code --Ofast-compile=max)
  endif()
endif()
list(JOIN chosen " " chosen)
message(STATUS "CUDA kernels: ${FL_NVCC}, for compute capabilities ${chosen}")

set(objects)
file(GLOB kernels CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/device/cuda/kernels/*.cu"
     "${PROJECT_SOURCE_DIR}/device/cuda/*.cu")
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/cuda")
foreach(source IN LISTS kernels)
  get_filename_component(name "${source}" NAME_WE)
  set(object "${PROJECT_BINARY_DIR}/cuda/${name}.o")
  add_custom_command(OUTPUT "${object}" DEPENDS "${source}" DEPFILE "${object}.d" VERBATIM
    COMMAND "${FL_NVCC}" -c -O3 -std=c++17 --threads 2 ${code} -I "${PROJECT_SOURCE_DIR}"
            -I "${PROJECT_SOURCE_DIR}/include" -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra
            -Werror all-warnings -MD -MF "${object}.d" -o "${object}" "${source}"
    COMMENT "Compiling ${name}.cu for CUDA")
  list(APPEND objects "${object}")
endforeach()
# Not linked: whether the tests' stand-in for cuBLASLt and NVIDIA's header agree.
set(checked "${PROJECT_BINARY_DIR}/cuda/check_cublaslt.o")
add_custom_command(OUTPUT "${checked}" DEPENDS "${PROJECT_SOURCE_DIR}/tests/shim/cublaslt/check.cu"
                   "${PROJECT_SOURCE_DIR}/tests/shim/cublaslt/constants.h" VERBATIM
  COMMAND "${FL_NVCC}" -c -std=c++17 -I "${PROJECT_SOURCE_DIR}" -o "${checked}"
          "${PROJECT_SOURCE_DIR}/tests/shim/cublaslt/check.cu"
  COMMENT "Comparing the stand-in for cuBLASLt with its header")
# The same for NCCL, where its header is found.
find_path(FL_NCCL_INCLUDE nccl.h HINTS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include)
set(checked_nccl)
if(FL_NCCL_INCLUDE)
  set(checked_nccl "${PROJECT_BINARY_DIR}/cuda/check_nccl.o")
  add_custom_command(OUTPUT "${checked_nccl}" DEPENDS "${PROJECT_SOURCE_DIR}/tests/nccl/check.cu"
                     "${PROJECT_SOURCE_DIR}/autodp/nccl/abi.h" VERBATIM
    COMMAND "${FL_NVCC}" -c -std=c++17 -I "${PROJECT_SOURCE_DIR}" -I "${FL_NCCL_INCLUDE}"
            -o "${checked_nccl}" "${PROJECT_SOURCE_DIR}/tests/nccl/check.cu"
    COMMENT "Comparing the declarations of NCCL with its header")
endif()
# The runtime is linked in, so the plugin needs the driver only.
# It lies beside the program, which looks for it there.
set(plugin "${PROJECT_BINARY_DIR}/libfrostline_cuda.so")
add_custom_command(OUTPUT "${plugin}" DEPENDS ${objects} VERBATIM
  COMMAND "${FL_NVCC}" -shared -cudart static ${code} -o "${plugin}" ${objects}
  COMMENT "Linking libfrostline_cuda.so")
add_custom_target(cuda_plugin DEPENDS "${plugin}" "${checked}" ${checked_nccl})
