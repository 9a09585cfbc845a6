// The subcommands of baton-k8s. Each adds itself to the program with its options and examples, and
// sets `exit_code` when it was run. SIGTERM and SIGINT end them cleanly.
#ifndef BATON_K8S_COMMAND_H_
#define BATON_K8S_COMMAND_H_

namespace CLI {
class App;
}

namespace baton::k8s {

void AddBinder(CLI::App& program, int* exit_code);
void AddWebhook(CLI::App& program, int* exit_code);
void AddExtender(CLI::App& program, int* exit_code);
void AddDevicePlugin(CLI::App& program, int* exit_code);

}  // namespace baton::k8s

#endif  // BATON_K8S_COMMAND_H_
