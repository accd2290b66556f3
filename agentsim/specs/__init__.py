"""Sourced facts about hardware, models, engines, endpoints and deployments: one YAML file per thing."""
