# What Baton costs: bench_<subject>, each a Google Benchmark program, and baton-bench, which runs
# them and brings their figures together.
add_library(baton_lanes STATIC lanes.cc lone_batond.cc zmq_lane.cc)
target_link_libraries(baton_lanes PRIVATE baton_options baton_sanitizers baton_backend
                                  PUBLIC baton_cluster baton_cli benchmark::benchmark)

foreach(subject token_rtt handoff)
  baton_program(bench_${subject} NO_INSTALL SOURCES ${subject}.cc DEPENDS baton_lanes)
endforeach()
baton_program(bench_decisions NO_INSTALL SOURCES decisions.cc
              DEPENDS baton_backend benchmark::benchmark)
baton_program(bench_placement NO_INSTALL SOURCES placement.cc
              DEPENDS baton_devmgr benchmark::benchmark)
baton_program(baton-bench NO_INSTALL SOURCES figures.cc
              DEPENDS CLI11::CLI11 nlohmann_json::nlohmann_json)
baton_compile_fast(baton-bench)
baton_program(bench_ledger NO_INSTALL SOURCES ledger.cc
              DEPENDS baton_ledger CLI11::CLI11 nlohmann_json::nlohmann_json)
