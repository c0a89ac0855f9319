set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 14)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

option(FL_WERROR "Warnings are errors" ON)
option(FL_FUZZ "Build the fuzz targets (clang)" OFF)
set(FL_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them (address,undefined or thread)")

function(fl_compile_options target)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE FL_VERSION="${PROJECT_VERSION}")
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:C>:-Wconversion -Wstrict-prototypes -Wvla>
    $<$<BOOL:${FL_WERROR}>:-Werror> -fno-math-errno
    $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>) # messages are cut at their buffer on purpose
  if(FL_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${FL_SANITIZE} -fno-sanitize-recover=all
                           -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${FL_SANITIZE})
  endif()
endfunction()

# fl_library(folder [TARGET name] [ROOMS room...] LINK library...): the static library
# frostline_<name> of every source in the folder, or in those of its rooms (subfolders) that are
# named. The default name is the folder's.
function(fl_library folder)
  cmake_parse_arguments(ARG "" "TARGET" "ROOMS;LINK" ${ARGN})
  if(NOT ARG_TARGET)
    set(ARG_TARGET ${folder})
  endif()
  set(places ${folder})
  if(ARG_ROOMS)
    set(places ${ARG_ROOMS})
    list(TRANSFORM places PREPEND "${folder}/")
  endif()
  set(sources)
  foreach(place IN LISTS places)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${place}/*.c"
         "${PROJECT_SOURCE_DIR}/${place}/*.cc")
    list(APPEND sources ${found})
  endforeach()
  list(FILTER sources EXCLUDE REGEX "/main\\.c$")
  list(FILTER sources EXCLUDE REGEX "/isa/[^/]*$") # fl_isa compiles these
  set(library frostline_${ARG_TARGET})
  add_library(${library} STATIC ${sources})
  target_include_directories(${library} PUBLIC "${PROJECT_SOURCE_DIR}"
                             "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(${library} PUBLIC ${ARG_LINK})
  fl_compile_options(${library})
endfunction()

# fl_isa(name flags...): the sources of device/cpu/isa once more, for one instruction set that the
# device chooses at run time. They are written with vector types, so they are optimized always: a
# debug build would spend its time there. With a sanitizer -O1 is enough: -O3 unrolls loops full of
# checks, which takes gcc more than twice as long, and clang minutes; the fuzz targets never compute.
function(fl_isa name)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/device/cpu/isa/*.c")
  add_library(frostline_isa_${name} OBJECT ${sources})
  target_include_directories(frostline_isa_${name} PRIVATE "${PROJECT_SOURCE_DIR}"
                             "${PROJECT_SOURCE_DIR}/include")
  set(optimize -O3)
  if(FL_SANITIZE)
    set(optimize -O1)
  endif()
  fl_compile_options(frostline_isa_${name})
  target_compile_definitions(frostline_isa_${name} PRIVATE FL_ISA=${name})
  target_compile_options(frostline_isa_${name} PRIVATE
    ${optimize} -ffp-contract=fast -fno-trapping-math -fno-signed-zeros -Wno-psabi ${ARGN}
    $<$<BOOL:${FL_FUZZ}>:-fno-sanitize=all>)
  target_sources(frostline_device PRIVATE $<TARGET_OBJECTS:frostline_isa_${name}>)
endfunction()
