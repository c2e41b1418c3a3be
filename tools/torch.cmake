# libtorch as one imported target. torch's own package file also looks for CUDA, protobuf and MKL's
# development files; linking the two CPU libraries directly needs none of them.
set(BMOJO_TORCH_DIR "" CACHE PATH "Folder of a torch install: the one with include/ and lib/")
find_path(TORCH_INCLUDE torch/csrc/api/include/torch/torch.h PATHS ${BMOJO_TORCH_DIR}/include
  NO_DEFAULT_PATH NO_CACHE)
find_library(TORCH_CPU torch_cpu PATHS ${BMOJO_TORCH_DIR}/lib NO_DEFAULT_PATH NO_CACHE)
find_library(TORCH_C10 c10 PATHS ${BMOJO_TORCH_DIR}/lib NO_DEFAULT_PATH NO_CACHE)
if(NOT TORCH_INCLUDE OR NOT TORCH_CPU OR NOT TORCH_C10)
  message(FATAL_ERROR "torch: BMOJO_TORCH_DIR must hold include/torch and lib/libtorch_cpu.so, got "
    "'${BMOJO_TORCH_DIR}'; run make, or give TORCH=DIR")
endif()
add_library(torch_cpu_only INTERFACE)
# Searched last: the wheel carries headers of other libraries too (another fmt among them), which
# must not shadow the system's.
target_compile_options(torch_cpu_only INTERFACE "SHELL:-idirafter \"${TORCH_INCLUDE}\""
  "SHELL:-idirafter \"${TORCH_INCLUDE}/torch/csrc/api/include\"")
target_link_libraries(torch_cpu_only INTERFACE ${TORCH_CPU} ${TORCH_C10})
# at::parallel_for is compiled into its caller, and only with OpenMP does it use torch's threads.
# Linked is torch's own runtime: a second one in the process would double the threads.
file(GLOB TORCH_OPENMP ${BMOJO_TORCH_DIR}/lib/libgomp*.so*)
if(NOT TORCH_OPENMP)
  set(TORCH_OPENMP gomp)
endif()
target_link_libraries(torch_cpu_only INTERFACE ${TORCH_OPENMP})
