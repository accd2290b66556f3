"""The discrete-event simulation: agents, tools, servers. The only importer of simpy."""
