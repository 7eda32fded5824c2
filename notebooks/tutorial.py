"""From a click log to examination propensities, in a notebook: `marimo edit notebooks/tutorial.py`."""

import marimo

app = marimo.App(width="medium", app_title="How far down do people look?")


@app.cell
def _():
    import marimo as mo

    from clickharvest import CPBM, PBM, diagnose, harvest, plot_curves, plot_importance, plot_overlap, read_log, weigh
    from clickharvest.baselines import click_rates
    from clickharvest.simulate import simulate_ab_log

    return (
        CPBM,
        PBM,
        click_rates,
        diagnose,
        harvest,
        mo,
        plot_curves,
        plot_importance,
        plot_overlap,
        read_log,
        simulate_ab_log,
        weigh,
    )


@app.cell(hide_code=True)
def _(mo):
    mo.md(
        """
        # How far down do people look?

        A click at rank 8 says more than a click at rank 1, because fewer people look there. How many fewer can be read
        off an ordinary click log, as long as results have moved: the same document, seen at two ranks, is its own
        control.

        Here is a simulated log: an A/B test of three rankers, on desktop and mobile. Its truth is known, so that we can
        see whether the method finds it. Put your own log into `read_log`.
        """
    )
    return


@app.cell
def _(read_log, simulate_ab_log):
    table, truth = simulate_ab_log(pages=20_000, seed=0)
    log = read_log(table, context=["device"])
    table.slice(0, 5).to_pandas()
    return log, truth


@app.cell(hide_code=True)
def _(mo):
    mo.md(
        """
        ## Can this log tell?

        Two positions are compared through the documents that were shown at both. A position that nothing links to the
        first would get no number at all.
        """
    )
    return


@app.cell
def _(diagnose, log, plot_overlap):
    diagnosis = diagnose(log)
    plot_overlap(diagnosis)
    return (diagnosis,)


@app.cell
def _(diagnosis, mo):
    mo.md("\n".join(f"- **{finding.severity}**: {finding.sentence}" for finding in diagnosis.findings))
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(
        """
        ## What it tells

        `PBM` fits one curve for everybody, `CPBM` one that depends on the context. Click rates by position mix
        examination with how good the results at a position are.
        """
    )
    return


@app.cell
def _(CPBM, PBM, click_rates, harvest, log):
    interventions = harvest(log)
    rates = click_rates(log)
    pbm = PBM(intervals="sandwich").fit(interventions)
    cpbm = CPBM(curve="power", penalty=1.0, intervals="sandwich").fit(interventions)
    return cpbm, interventions, pbm, rates


@app.cell
def _(mo):
    device = mo.ui.dropdown(["desktop", "mobile"], value="mobile", label="device")
    device
    return (device,)


@app.cell
def _(cpbm, device, pbm, plot_curves, rates):
    plot_curves({"CPBM": cpbm, "PBM": pbm, "click rates": rates}, {"device": [device.value]})
    return


@app.cell
def _(cpbm, interventions, plot_importance):
    plot_importance(cpbm, interventions.contexts)
    return


@app.cell
def _(cpbm, mo, truth):
    found = cpbm.predict({"device": list(truth.contexts)})
    error = abs(1 - found.propensity / truth.examination).max()
    mo.md(f"The largest relative error at any position, on either device, is **{error:.1%}**.")
    return (error,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(
        """
        ## Use it

        Each click counts 1/p. A floor on p (the clip) keeps rare clicks far down from outweighing everything else.
        """
    )
    return


@app.cell
def _(cpbm, log, weigh):
    weights = weigh(log, cpbm.propensities_, clip="auto")
    print(weights.report)
    return (weights,)


if __name__ == "__main__":
    app.run()
